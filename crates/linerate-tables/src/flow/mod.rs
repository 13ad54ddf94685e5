//! Flow table with ageing.
