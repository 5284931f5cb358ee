"""Complete register programs of the layers, in the form that the vendor and Mesa use [HW 14]."""
