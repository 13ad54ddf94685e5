//! Access lists: ordered rules over several fields.
