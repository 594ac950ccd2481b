"""The networks of the survey, by what they are for; every function says where such a network comes from."""

from concord_bench.reach.networks.attention import TOKENS
from concord_bench.reach.networks.builder import Builder, Model, Network
from concord_bench.reach.networks.pictures import DETECTION, GENERATION
from concord_bench.reach.networks.scikit_learn import SKLEARN
from concord_bench.reach.networks.sequences import RECURRENT, SOUND
from concord_bench.reach.networks.tables import CONTROL, DENSE, SETS, TABLES
from concord_bench.reach.networks.torch_modules import TORCH
from concord_bench.reach.networks.vision import IMAGES
from concord_bench.reach.networks.whole_models import WHOLE

FAMILIES = (
    DENSE, IMAGES, DETECTION, GENERATION, SOUND, RECURRENT, TOKENS, SETS, TABLES, CONTROL, SKLEARN, WHOLE, TORCH,
)  # fmt: skip
#: All networks, in the order of the page.
NETWORKS = tuple(network for family in FAMILIES for network in family.networks)

__all__ = ["FAMILIES", "NETWORKS", "Builder", "Model", "Network"]
