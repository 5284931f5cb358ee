"""Published measurements of boards beside the RTL (`rkcosim validate`)."""
