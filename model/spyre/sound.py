"""The behaviour that the Spyre scheduling page documents, except that the projection keeps every
batch within the page's limit. With this behaviour, every rule holds.

The page's own projection is too low (SPY-R43, SPY-R44). Here, every request is projected from the
larger of the batch's tkv and the newcomer's prompt, rounded up to whole blocks, without an
additional block. Everything else is as documented.
"""

from dataclasses import replace

from .documented import DOCUMENTED
from .volumetric import ByFormula, common_base

SOUND = replace(DOCUMENTED, name="sound", volume_check=ByFormula(common_base))
