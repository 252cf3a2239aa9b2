"""The page of what the protocol requires has each heading that a rule names as its source."""

import re
from pathlib import Path

import pytest

from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "protocol-rules.md"


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_rule_of_the_protocol_names_a_heading_of_its_page(system):
    headings = {line[3:].lower() for line in PAGE.read_text("utf-8").splitlines() if "## " in line}
    for rule in load(system):
        for source in re.findall(r"target protocol, ([^;]*)", rule.source):
            named = re.split(r"[:,]", source)[0].strip().lower()
            assert named in headings, (rule.id, named)
