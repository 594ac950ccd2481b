"""Which configuration computes a network fastest on a board."""

from concord.fit.candidates import Candidate as Candidate
from concord.fit.candidates import search as search
from concord.fit.resources import Use as Use
from concord.fit.resources import use_of as use_of
