//! What the loop is doing now, for whoever asks: the control socket and the metrics.
