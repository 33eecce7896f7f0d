"""The plugin framework: finds plugins, checks them, orders them and runs them.

- `interface`: the extension points, which are what a plugin is;
- `signatures`: which arguments the methods of a plugin take;
- `descriptor`: what a plugin says of itself;
- `models`: options, and policies called `custom`, by models of pydantic;
- `loader`: finds and makes them;
- `selection`: whom they serve, as far as a runtime says;
- `ordering`: their order within a phase;
- `calls`, `results`, `watches`: how they are called, and what they return;
- `custom_policies`: `mlPolicy.custom` and `podGroupPolicy.custom`;
- `framework`: runs them, phase by phase.

Guarantees:
- Built-in and third-party plugins enter alike, through the entry-point group `trainmaster.plugins`.
- A plugin that cannot be loaded, or that does not fit the interface, is named together with its distribution when the
  framework is made: nothing surprising happens later.
"""

from trainmaster.runtime.framework.calls import PluginFailed
from trainmaster.runtime.framework.framework import Framework
from trainmaster.runtime.framework.loader import load_plugins
from trainmaster.runtime.framework.signatures import PluginInvalid

__all__ = ["Framework", "PluginFailed", "PluginInvalid", "load_plugins"]
