"""The estimator's data set, measured on the RTL (`collect`), and the fit of its coefficients (`fit`)."""
