"""Components and interfaces whose ports are stated in one table: direction, shape, initial value and meaning."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from amaranth.lib import wiring
from amaranth.lib.wiring import Flow, In, Member, Out

from concord.spec.config import NpuConfig


class Port:
    """One port of a :class:`Component` or an :class:`Interface`, an attribute of its class.

    Instances of a component have the signal, view or interface under the same name.

    Parameters
    ----------
    flow : Flow
        ``In`` or ``Out``.
    shape : ShapeLike, Signature, or function of the component
        Width, layout or interface. A function gets the component with the attributes that were set before
        ``super().__init__()``.
    text : str
        What it means, for the documentation of the class.
    init : int
        Initial value, or a function of the component to it.
    when : function of the component, optional
        There is such a port only where it is true.
    """

    def __init__(
        self, flow: Flow, shape: Any, text: str, *, init: Any = None, when: Callable[[Any], Any] | None = None
    ):
        self.flow = flow
        self.shape = shape
        self.text = text
        self.init = init
        self.when = when

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, component: Any, owner: type | None = None) -> Any:
        """Return the port itself; a component that has it holds its signal in an attribute, which comes first."""
        if component is None:
            return self
        raise AttributeError(f"{type(component).__name__} has no port {self.name!r} in this configuration")

    def member(self, component: Any) -> Member | None:
        """Return the member of the signature of a component, ``None`` if it has none."""
        if self.when is not None and not self.when(component):
            return None
        shape, init = (
            value(component) if isinstance(value, FunctionType) else value for value in (self.shape, self.init)
        )
        return self.flow(shape) if init is None else self.flow(shape, init=init)


def Input(shape: Any, text: str, *, init: Any = None, when: Callable[[Any], Any] | None = None) -> Any:
    """Return a :class:`Port` into a component."""
    return Port(In, shape, text, init=init, when=when)


def Output(shape: Any, text: str, *, init: Any = None, when: Callable[[Any], Any] | None = None) -> Any:
    """Return a :class:`Port` out of a component."""
    return Port(Out, shape, text, init=init, when=when)


class PortTable:
    """Base of classes that have ports as attributes of their own and of the classes they are derived from.

    The documentation of the class gets a section with them.
    """

    def __init_subclass__(cls) -> None:
        if cls.ports():
            lines = [f"{name} : {port.flow}\n    {port.text}" for name, port in cls.ports().items()]
            cls.__doc__ = "\n".join([inspect.cleandoc(cls.__doc__ or ""), "", "Members", "-------", *lines])

    @classmethod
    def ports(cls) -> dict[str, Port]:
        """Return the ports by name, those of base classes first."""
        classes = reversed(cls.__mro__)
        return {name: port for base in classes for name, port in vars(base).items() if isinstance(port, Port)}

    def _members(self) -> dict[str, Member]:
        """Return the members of the signature, for the attributes that are set."""
        members = {name: port.member(self) for name, port in self.ports().items()}
        return {name: member for name, member in members.items() if member is not None}


class Interface(PortTable, wiring.Signature):
    """A signature whose ports are stated as those of a :class:`Component`, seen from the side that its text names."""

    def __init__(self) -> None:
        super().__init__(self._members())


class Component(PortTable, wiring.Component):
    """A component whose ports are stated in its class.

    ``super().__init__()`` comes last in a constructor, after the attributes that shapes depend on.

    Parameters
    ----------
    more : Mapping of str to Member
        Ports whose names depend on the configuration.
    """

    def __init__(self, more: Mapping[str, Member] | None = None):
        super().__init__(self._members() | dict(more or {}))


class NpuUnit(Component):
    """A component that the configuration of the NPU determines.

    Parameters
    ----------
    config : NpuConfig
        The configuration.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__()


class NpuInterface(Interface):
    """An interface that the configuration of the NPU determines.

    Parameters
    ----------
    config : NpuConfig
        The configuration.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__()
