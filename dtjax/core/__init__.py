"""What every other package stands on: pytrees, random numbers, validation, protocols, arrays."""
