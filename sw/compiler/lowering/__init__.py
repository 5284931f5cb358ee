"""Operations to steps: what bytes and fp16 have in common, and the arithmetic of each."""
