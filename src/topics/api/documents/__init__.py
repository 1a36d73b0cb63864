"""What is made from the declarations: the OpenAPI document and the reference."""
