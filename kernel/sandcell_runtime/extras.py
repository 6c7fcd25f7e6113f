"""What a request may ask of a kernel beyond Jupyter, by `{"sandcell": {...}}` in its metadata.

`environ` (name to text, or to null for unset: from now on); `want` (extras for results: "value", "data", "chart"), `spill`
(`{folder, text, image}`: what is larger goes into files, see `spills`), `env` (as `environ`), `cwd` and `tools`
(`{address, secret}`, where host tools are called), all for this run alone;
or an errand, which runs nothing: `ticket` (raise the execution count) or `exchange` (`{verb, name, path, form}`: an
object in or out). A reply that refuses holds `"sandcell": {"refused": CODE, "hint"}` beside `ename` and `evalue`.
"""

from __future__ import annotations

from typing import Any, cast

from sandcell_runtime.objects import ExchangeRefused, load_object, save_object
from sandcell_runtime.variables import describe_variables

__all__ = ["VARIABLES", "Extras", "extras_of", "is_errand"]

VARIABLES = "sandcell_variables_request"  # a message of ours on control


def extras_of(metadata: dict[str, Any] | None) -> dict[str, Any]:
    """Return what the metadata of a request ask beyond Jupyter; any client of a kernel can put something else there."""
    asked: object = (metadata or {}).get("sandcell")
    return cast("dict[str, Any]", asked) if isinstance(asked, dict) else {}


def is_errand(extras: dict[str, Any]) -> bool:
    return bool(extras.get("ticket")) or "exchange" in extras


class Extras:
    """The part of a kernel that does so; it stands before one of ipykernel's among the bases of a class."""

    @property
    def _ipython(self) -> Any:
        """The shell, whose parts ipykernel types as optional; a kernel without one does not start."""
        own: Any = self
        return own.shell

    async def do_errand(self, extras: dict[str, Any]) -> dict[str, Any]:
        """Do what runs no code, and return the content of the reply."""
        return self._take_ticket() if extras.get("ticket") else self._exchange(extras["exchange"])

    async def sandcell_variables_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Tell what the variables are. On control, and so while a cell runs."""
        own: Any = self
        told = describe_variables(self._ipython.user_ns, self._ipython.user_ns_hidden)
        own.session.send(stream, "sandcell_variables_reply", told, parent, ident)

    def refused(self, code: str, message: str, hint: str = "") -> dict[str, Any]:
        """Return the reply of a request that is not done."""
        told = {"refused": code, "hint": hint} if hint else {"refused": code}
        return self.failed(code, message, sandcell=told)

    def failed(self, name: str, value: str, **more: Any) -> dict[str, Any]:
        """Return the reply of a request that came to nothing."""
        return {
            "status": "error",
            "ename": name,
            "evalue": value,
            "traceback": [],
            "execution_count": self._ipython.execution_count,
            "user_expressions": {},
            "payload": [],
            **more,
        }

    def _exchange(self, asked: dict[str, str]) -> dict[str, Any]:
        """Take an object in from a file (`verb` is "load"), or give one out into it ("save")."""
        names, name, path = self._ipython.user_ns, asked["name"], asked["path"]
        try:
            if asked["verb"] == "load":
                load_object(names, name, path, asked["form"])
                form = asked["form"]
            else:
                form = save_object(names, name, path)
        except ExchangeRefused as problem:
            return self.refused(problem.code, str(problem), problem.hint)
        except Exception as problem:  # noqa: BLE001 -- a library of the user's may fail in any way
            return self.refused("INTERNAL", f"{type(problem).__name__}: {problem}")
        return self._done(self._ipython.execution_count, sandcell={"exchanged": {"form": form}})

    def _take_ticket(self) -> dict[str, Any]:
        count = self._ipython.execution_count
        self._ipython.execution_count = count + 1
        # In[count] is a place in these lists: a cell that ran elsewhere must not shift those that follow.
        self._ipython.history_manager.input_hist_parsed.append("")
        self._ipython.history_manager.input_hist_raw.append("")
        return self._done(count)

    def _done(self, count: int, **more: Any) -> dict[str, Any]:
        return {"status": "ok", "execution_count": count, "user_expressions": {}, "payload": [], **more}
