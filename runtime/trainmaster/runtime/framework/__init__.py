"""The plugin framework: finds plugins, checks them, orders them and runs them.

- `loading`: finds and makes them;
- `checking`: whether they fit the interface;
- `ordering`: which comes first;
- `running`: runs them, phase by phase.

Guarantees:
- Built-in and third-party plugins enter alike, through the entry-point group `trainmaster.plugins`.
- A plugin that cannot be loaded, or that does not fit the interface, is named together with its distribution when the
  framework is made: nothing surprising happens later.
"""

from trainmaster.runtime.framework.checking import PluginInvalid
from trainmaster.runtime.framework.loading import load_plugins
from trainmaster.runtime.framework.running import Framework, PluginFailed

__all__ = ["Framework", "PluginFailed", "PluginInvalid", "load_plugins"]
