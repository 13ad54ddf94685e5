//! Connection tracking: what may follow what in a flow.
