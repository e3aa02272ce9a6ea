"""Inputs that nobody wrote down: made by schemathesis, hypothesis and atheris; `make fuzz` makes many more."""
