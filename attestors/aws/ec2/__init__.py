"""What EC2 and IAM say about an instance and its role: asked by the controller, with its own credentials."""
