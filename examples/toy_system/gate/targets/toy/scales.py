"""The configurations that targets are judged in, by scale.

Every target must accept each of them. List what a target may lack in `plain` and `features`
(`GateScales`).
"""

from schedproof.gate.targets.scales import GateScales

SCALES = GateScales(scales={"small": {}, "short": {}, "tight": {}})
