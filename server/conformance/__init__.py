"""Whether sources, outputs and forms of other packages keep their promises: their authors' tests call it.

Each function takes what a package brings, tries it, and returns what is wrong; an empty list is what a test asserts.
See docs/howto/plugins.md.
"""

from .faults import Fault
from .forms import form_faults
from .outputs import output_faults
from .sources import source_faults

__all__ = ["Fault", "form_faults", "output_faults", "source_faults"]
