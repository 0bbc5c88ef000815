"""`python -m joulemesh`."""

from joulemesh.cli import main

main()
