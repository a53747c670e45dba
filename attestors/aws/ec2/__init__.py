"""EC2's and IAM's descriptions of an instance and its role; the controller calls them with its own credentials."""
