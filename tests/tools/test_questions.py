"""Every tool begins with the question that it answers, and says how to run it."""

import ast

import pytest

from schedproof.tools.house import ROOT, sources

# Programs that an attack starts.
PARTS = {"tools/hostile/bad_target.py", "tools/hostile/installer.py", "tools/__main__.py"}
TOOLS = {
    name: path
    for path in sources("tools")
    if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
    if (name := path.relative_to(ROOT).as_posix()) not in PARTS
}


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_says_which_question_it_answers_and_how_to_run_it(name):
    doc = ast.get_docstring(ast.parse(TOOLS[name].read_text(encoding="utf-8"))) or ""
    question, _, rest = doc.partition("\n\n")
    assert question.endswith("?")
    assert "make tool NAME=" in rest or "`make " in rest
