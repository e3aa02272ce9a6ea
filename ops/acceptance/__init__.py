"""`make accept`: whether the running stack does what its users were promised, asked through nginx as they ask."""
