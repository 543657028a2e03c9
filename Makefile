# Aliases: the commands are in scripts/.
.PHONY: demo test install lint check coverage build lock recipes soak

demo:
	@scripts/demo

test:
	@scripts/check
	@scripts/test

install lint check coverage build lock recipes soak:
	@scripts/$@
