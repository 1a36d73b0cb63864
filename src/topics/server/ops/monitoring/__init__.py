"""What operators watch: metrics, health, warnings, and the overview of the console."""
