"""The panel: a slice's memory and compute in a notebook, changed while the kernel runs.

```python
from gaia_hub.panel import Panel

Panel()
```
"""

from gaia_hub.panel.widget import Panel, show

__all__ = ["Panel", "show"]
