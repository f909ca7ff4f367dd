"""Classes of cases: each module makes the cases that meet one kind of condition (`extra_cases.py` calls them)."""
