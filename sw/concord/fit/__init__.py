"""Search for the configuration that computes a network fastest on a board, and loses no more than it may."""

from concord.fit.candidates import Candidate as Candidate
from concord.fit.candidates import Race as Race
from concord.fit.candidates import search as search
from concord.fit.evidence import Judge as Judge
from concord.fit.resources import Use as Use
from concord.fit.resources import use_of as use_of
