from django.urls import path

from . import views

urlpatterns = [path("orders", views.place), path("orders/<int:number>", views.look)]
