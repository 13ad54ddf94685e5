//! Zones, and which flows may begin between them.
