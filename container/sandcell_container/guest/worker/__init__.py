"""What runs in the worker: a process with the user's rights. Standard library only, and nothing of ours but what is here
and what `shipment` names: the text of these modules is all that there is of us in that process."""
