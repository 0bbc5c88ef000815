"""What people see. In: plans and results. Out: console tables, figures, HTML pages.
May not know: how any of it was computed (``aggregation``, ``training``, ``methods``).
"""
