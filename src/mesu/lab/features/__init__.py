"""Features of photographs from networks that were trained on ImageNet."""
