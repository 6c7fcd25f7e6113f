"""The command `sandcell`: one module for each verb, `main` to choose among them."""
