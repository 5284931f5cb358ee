"""A model run through `rknn_api`, with its report; the same beside another runtime."""
