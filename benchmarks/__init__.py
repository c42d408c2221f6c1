"""Measurements that print their numbers; none of them is imported by the package."""
