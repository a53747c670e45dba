"""``aws``: an EC2 instance with a public address, and a security group of its own, for each bastion.

``provider`` has the settings, ``user_data`` what the instance is told when it starts, ``ec2`` the calls (it alone knows
boto3), ``rules`` the difference between rules, and ``resources`` the provider's logic.
"""
