"""The plugin framework: finds plugins, checks them, orders them and runs them.

- `interface`: the extension points, which are what a plugin is;
- `loader`: finds and makes them, and checks whether they fit the interface;
- `framework`: orders them and runs them, phase by phase.

Guarantees:
- Built-in and third-party plugins enter alike, through the entry-point group `trainmaster.plugins`.
- A plugin that cannot be loaded, or that does not fit the interface, is named together with its distribution when the
  framework is made: nothing surprising happens later.
"""

from trainmaster.runtime.framework.framework import Framework, PluginFailed
from trainmaster.runtime.framework.loader import PluginInvalid, load_plugins

__all__ = ["Framework", "PluginFailed", "PluginInvalid", "load_plugins"]
