"""Mends what the reference cannot read from the source alone: see `mesu` through griffe's eyes."""

from typing import Any

import griffe


class Mended(griffe.Extension):
    """Code in `Example:` sections, functions named like their module, and constants without a docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Griffe reads sessions of the interpreter below `Examples:` only, and counts special methods as public."""
        if obj.name.startswith("__") and obj.name.endswith("__") and obj.parent and obj.parent.is_class:
            obj.public = False
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Look through the public modules."""
        for module in (member for member in pkg.members.values() if not member.is_alias and member.is_module):
            for name in module.exports or ():
                member = module.members.get(str(name))
                if isinstance(member, griffe.Alias):
                    target = member.final_target
                    if target.is_module and name in target.members:  # `digits` is a function in digits.py
                        module.set_member(str(name), griffe.Alias(str(name), target.members[str(name)], parent=module))
                elif isinstance(member, griffe.Attribute) and not member.docstring:
                    member.docstring = griffe.Docstring("A constant; the module's description has it.", parent=member)
