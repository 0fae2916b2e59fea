"""decant-batch: a share of TIFFs in, verified byte-exact OME-Zarr archives out."""

__version__ = "0.1.0"
