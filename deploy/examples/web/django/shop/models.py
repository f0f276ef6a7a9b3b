from django.db import models


class Order(models.Model):
    name = models.CharField(max_length=100)
    item = models.CharField(max_length=100)
    letter = models.TextField(default="")

    @property
    def run(self) -> str:
        """The id of its run: however often the order is submitted, it is one run."""
        return f"order-{self.pk}"
