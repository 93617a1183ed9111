"""SGD on quadratics under delay, exactly."""
