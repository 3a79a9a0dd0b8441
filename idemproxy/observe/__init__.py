"""What is told to the outside: each request as one frozen `Observation`, taken by metrics and by the access log."""
