"""Operations that become part of others before layers become steps."""
