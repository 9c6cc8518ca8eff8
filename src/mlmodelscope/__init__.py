"""MLModelScope: evaluate and benchmark machine-learning models repeatably, fairly and at scale."""
