"""Tools as modules: their names end in no .py, so that `import` does not find them."""

import importlib.machinery
import importlib.util
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def tool(name):
    """The tool of this name in this folder, as a new module. Callers that leave nothing in the folder set sys.dont_write_bytecode before."""
    loader = importlib.machinery.SourceFileLoader("tool_" + name.replace("-", "_"), str(FOLDER / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    # Its dataclasses look themselves up.
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module
