"""What the product is shipped with: which packages at which versions, under which licences, with which known faults."""
