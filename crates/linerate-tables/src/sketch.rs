//! Heavy-hitter sketch.
