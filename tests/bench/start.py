"""Rows about starting: from the command to the first line of the user's code, with nothing to fetch and with a large
model that is there already."""


def first_line(bench):
    pass


def warm_model(bench):
    pass
