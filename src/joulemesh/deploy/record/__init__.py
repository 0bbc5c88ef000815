"""What a fleet did, read from its journals: history, costs, receipt, and the run played again."""
