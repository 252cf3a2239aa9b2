"""The page with a projection that keeps the page's limit: every rule holds.

Since the page's own projection is too low (SPY-R43, SPY-R44), every request is projected from the
wider of batch and prompt, in whole blocks, with no block added. All else is as documented.
"""

from dataclasses import replace

from .documented import DOCUMENTED
from .volumetric import ByFormula, common_base

SOUND = replace(DOCUMENTED, name="sound", volume_check=ByFormula(common_base))
