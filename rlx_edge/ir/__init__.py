"""The intermediate representation: types, operators, text, and the records that executors read."""
